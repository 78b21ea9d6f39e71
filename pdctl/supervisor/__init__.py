"""The supervisor below its flows: what a look is, the history of looks, and the pages that show them."""
