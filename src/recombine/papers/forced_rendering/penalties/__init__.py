"""Remedy A: do penalties on rendered embeddings make a network compose? (§4.1, Fig. 3, 6)"""
