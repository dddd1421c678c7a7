"""Does the shape or the size of the hold-out matter? (extra)"""
