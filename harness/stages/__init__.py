"""The stages of a run, one module each; `pipeline` puts them in order."""
