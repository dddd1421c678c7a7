"""Which number should one look at?"""
