"""What a maintainer runs and a user does not."""
