"""Studies: experiments over whole runs, and the pages and figures that show them."""
