"""Pages with plots, for people who would rather look: `plots` draws plain rows, `page` puts figures together."""
