"""How much data does it take, as images grow? (§4.2, Fig. 4c)"""
