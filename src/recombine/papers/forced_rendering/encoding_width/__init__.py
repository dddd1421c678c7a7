"""Does a broader population code compose better? (extra)"""
