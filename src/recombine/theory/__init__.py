"""The paper's Appendix A, executable: complexity, kernels, factorization up to invertible maps, reversibility."""
