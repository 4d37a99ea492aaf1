"""HTML reports: `plots` draws figures, `page` puts them together."""
