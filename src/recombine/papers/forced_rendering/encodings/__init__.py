"""Do networks compose, whatever the encoding? (§3.2, Fig. 1 a–c)"""
