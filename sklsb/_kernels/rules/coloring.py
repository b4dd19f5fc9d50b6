"""Colouring of a graph, node by node."""

from sklsb._kernels._jit import kernel


@kernel
def color(start, near, found, queue, seen):
    """Give nodes the first colour that no neighbour has, in breadth-first order.

    Node i has the neighbours ``near[start[i]:start[i + 1]]``. ``found`` gets the colours. ``queue``
    has room for all nodes, and ``seen``, all zero, for one more than a node has neighbours.
    """
    found[:] = -1
    for root in range(found.size):
        if found[root] >= 0:
            continue
        queue[0] = root
        found[root] = 0
        here, end = 0, 1
        while here < end:
            node = queue[here]
            here += 1
            for k in range(start[node], start[node + 1]):
                other = near[k]
                if other != node and found[other] >= 0:
                    seen[found[other]] = node + 1
            if node != root:
                first = 0
                while seen[first] == node + 1:
                    first += 1
                found[node] = first
            for k in range(start[node], start[node + 1]):
                other = near[k]
                if found[other] == -1:
                    found[other] = -2  # in the queue
                    queue[end] = other
                    end += 1
