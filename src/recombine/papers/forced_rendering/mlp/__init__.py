"""Do MLPs warp the held-out region the other way? (App. E.3, Fig. 13, 14)"""
