"""Are early stages tuned to stripes and late ones to bumps? (App. E.4, Fig. 4f, 15)"""
