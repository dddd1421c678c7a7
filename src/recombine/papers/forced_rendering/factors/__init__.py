"""Does forced rendering scale to three, four and five factors? (ours)"""
