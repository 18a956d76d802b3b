"""Types of arrays, for modules that import NumPy only when they compute."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Array = NDArray[np.float64]
    Ints = NDArray[np.int_]
else:
    Array = Ints = Any
