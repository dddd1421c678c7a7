"""Code for the paper's Appendix A: complexity, kernels, factorization up to invertible maps, and reversibility."""
