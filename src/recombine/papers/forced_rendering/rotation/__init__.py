"""What does a network draw in a gap between the angles it was trained on? (App. E.2, Fig. 9)"""
