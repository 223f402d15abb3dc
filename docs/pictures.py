"""Make the README's pictures: a model is trained, and its page photographed in light and dark.

    python docs/pictures.py            about half a minute; needs MNIST and Chromium

The network is small enough to train while one waits: two pre-norm blocks with four heads each.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "view"))

from chromium import Browser  # noqa: E402 - the tests' own hands in a browser

import undivided  # noqa: E402

NETWORK = """
network Digits {
  input: (28, 28)
  data: mnist
  layers:
    Rescaling(1/255)
    Patches(4)
    Dense(32)
    LearnedPositions(start="sinusoidal")
    Residual {
      LayerNormalization()
      MultiHeadAttention(num_heads=4)
    }
    Residual {
      LayerNormalization()
      Dense(64, activation="gelu")
      Dense(32)
    }
    Residual {
      LayerNormalization()
      MultiHeadAttention(num_heads=4)
    }
    Residual {
      LayerNormalization()
      Dense(64, activation="gelu")
      Dense(32)
    }
    LayerNormalization()
    GlobalAveragePooling1D()
    Output(10)
  optimizer: AdamW(learning_rate=ExponentialDecay(0.003, 400, 0.9), weight_decay=0.02)
  train { epochs: 3 }
}
"""

PLACE = "#7.1.1.16.34"  # sample, layer, head, query, key
SIZE = (1360, 960)


def main() -> None:
    network = undivided.parse(NETWORK)
    data = undivided.datasets.mnist()
    model = undivided.Model(network, seed=1)
    model.fit(data.train, test=data.test, progress=True)
    pictures = ROOT / "docs" / "pictures"
    pictures.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, Browser() as browser:
        page = model.view(data.test[:12]).save(Path(folder) / "heads.html")
        for name, dark in (("light", False), ("dark", True)):
            tab = browser.open(page, dark=dark, size=SIZE, place=PLACE)
            heads = pictures / f"heads-{name}.png"
            heads.write_bytes(tab.picture())
            box = tab.value(
                "(e => { const b = e.getBoundingClientRect();"
                "return [b.x + scrollX, b.y + scrollY, b.width]; })"
                "(document.querySelector('.work'))"
            )
            clip = {"x": box[0] - 32, "y": box[1], "width": box[2] + 64, "height": 1000, "scale": 1}
            (pictures / f"steps-{name}.png").write_bytes(tab.picture(clip=clip))
            tab.close()


if __name__ == "__main__":
    main()
