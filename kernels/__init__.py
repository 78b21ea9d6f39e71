"""Operations of the engine on tensors and numbers. Imports torch (and triton) alone."""
