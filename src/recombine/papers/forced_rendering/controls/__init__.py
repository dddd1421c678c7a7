"""Is what the paper gives as the cause peculiar to networks that fail?"""
