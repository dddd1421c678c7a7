"""Do memorising and composing networks sit in different kernel regimes? (App. A.4–A.5)"""
