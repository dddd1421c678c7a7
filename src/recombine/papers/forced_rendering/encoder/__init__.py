"""Does the other direction, image to code, compose? (extra)"""
