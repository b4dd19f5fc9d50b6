"""How `AutoSampler` finds the sampler that suits a target."""
