"""Do transformers and spatially aware MLPs compose? (extra)"""
