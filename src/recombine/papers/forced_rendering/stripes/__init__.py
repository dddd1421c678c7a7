"""Remedy B: do examples of single factors make a network compose? (§4.2, Fig. 4 a, b, d, e, 7)"""
