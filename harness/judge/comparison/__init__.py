"""Two runs held against each other: what got worse, and what would have been no news."""
