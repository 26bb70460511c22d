"""What `validate.py` checks, a file for each subject."""
