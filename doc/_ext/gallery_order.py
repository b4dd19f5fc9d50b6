"""The order of the examples: from first steps to research."""

EXAMPLES = (
    "first_fit",
    "image_segmentation",
    "potts",
    "markov_network",
    "decoder",
    "variable_selection",
    "spike_slab",
    "own_function",
    "max_cut",
    "rbm_digits",
    "torch_energy",
    "tempering",
    "temperatures",
    "dreamt_digits",
    "balancing_functions",
    "tied_spins",
    "ising_chain",
)


class FromFirstSteps:
    """Sort key of sphinx-gallery; an example that is not in the list is an error."""

    def __init__(self, src_dir):
        del src_dir

    def __call__(self, filename):
        return EXAMPLES.index(filename.removeprefix("plot_").removesuffix(".py"))
