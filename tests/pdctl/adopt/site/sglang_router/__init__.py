"""A test double that stands where the SGLang router would."""
