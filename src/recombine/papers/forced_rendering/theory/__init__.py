"""Do networks that compose have the structure that the paper's Appendix A asks for? (§3.4, App. A)"""
