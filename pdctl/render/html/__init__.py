"""One run of diagnose as a page: self-contained, nothing loaded from anywhere."""
