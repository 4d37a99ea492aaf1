"""Messages published on: to one topic for each value of an attribute, to several, under another name, or to none."""
