"""What the archive says over commits: series in the order of ancestry, the steps in them, and a site of both."""
