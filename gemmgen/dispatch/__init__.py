"""Which kernel a product of any shape is computed with: chosen, remembered, called."""
