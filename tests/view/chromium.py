"""A headless Chromium, driven through its own protocol over two pipes: no driver, no package.

    with Browser() as browser:
        page = browser.open(path)
        page.value("document.title")
        page.click("#next"), page.press("ArrowDown")
        assert not page.complaints

Every message is JSON that ends with a zero byte: https://chromedevtools.github.io/devtools-protocol
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import select
import shutil
import subprocess
import tempfile
from pathlib import Path
from time import monotonic
from typing import Any

__all__ = ["Browser", "Tab", "chromium"]

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)
PATIENCE = 20.0  # seconds for one answer
KEYS = {"ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40, "Home": 36, "End": 35}
KEYS |= {"Tab": 9, "Enter": 13, " ": 32}


def chromium() -> str | None:
    """The browser of this machine, if it has one."""
    names = ("chromium", "chromium-browser", "google-chrome")
    return next((found for name in names if (found := shutil.which(name))), None)


class Browser:
    """One process with a profile of its own, which goes when it does."""

    def __init__(self) -> None:
        self._profile = tempfile.mkdtemp(prefix="undivided-chromium-")
        to_read, self._write = os.pipe()
        self._read, to_write = os.pipe()

        # The browser reads what it is to do from descriptor 3 and answers on 4. Both are made
        # in the child from copies above them, so that neither overwrites the other.
        def place_pipes() -> None:
            high = [os.dup2(fd, 100 + n) for n, fd in enumerate((to_read, to_write))]
            for wanted, fd in zip((3, 4), high, strict=True):
                os.dup2(fd, wanted)

        self._process = subprocess.Popen(
            [str(chromium()), *FLAGS, f"--user-data-dir={self._profile}", "about:blank"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            preexec_fn=place_pipes,
            close_fds=False,
        )
        os.close(to_read)
        os.close(to_write)
        self._pending, self._count = b"", 0
        self._tabs: dict[str, Tab] = {}

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, *error: object) -> None:
        with contextlib.suppress(Exception):
            self.send("Browser.close")
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._read)
        os.close(self._write)
        shutil.rmtree(self._profile, ignore_errors=True)

    def open(
        self,
        path: Path,
        *,
        dark: bool = False,
        size: tuple[int, int] = (1440, 1000),
        place: str = "",
    ) -> Tab:
        """A page from the disk, loaded; `place` is what follows the # of its address."""
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        tab = self._tabs[session] = Tab(self, session, target)
        for domain in ("Page", "Runtime", "Log", "Network"):
            tab.send(f"{domain}.enable")
        tab.look(dark=dark, size=size)
        tab.go(path.as_uri() + place)
        return tab

    def send(self, method: str, session: str | None = None, **parameters: Any) -> Any:
        self._count += 1
        number = self._count
        message: dict[str, Any] = {"id": number, "method": method, "params": parameters}
        if session is not None:
            message["sessionId"] = session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self.receive()
            if answer.get("id") == number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']['message']}")
                return answer["result"]

    def receive(self) -> dict[str, Any]:
        """The next message; events are noted by the tab that they are about."""
        end = monotonic() + PATIENCE
        while b"\0" not in self._pending:
            ready, _, _ = select.select([self._read], [], [], max(0.0, end - monotonic()))
            piece = os.read(self._read, 1 << 20) if ready else b""
            if not piece:
                raise TimeoutError("Chromium does not answer.")
            self._pending += piece
        message, _, self._pending = self._pending.partition(b"\0")
        found = json.loads(message)
        if "method" in found and found.get("sessionId") in self._tabs:
            self._tabs[found["sessionId"]].note(found["method"], found["params"])
        return found


class Tab:
    """One page: what it says, what it asks for, and hands to use it with."""

    def __init__(self, browser: Browser, session: str, target: str) -> None:
        self._browser, self._session, self._target = browser, session, target
        self.loaded = False
        self.complaints: list[str] = []
        """Errors and warnings of the console, exceptions, dialogs, refusals of the policy."""
        self.requests: list[str] = []
        """Everything that the page asked for, itself and what is in it apart."""

    def send(self, method: str, **parameters: Any) -> Any:
        return self._browser.send(method, self._session, **parameters)

    def note(self, event: str, about: dict[str, Any]) -> None:
        if event == "Page.loadEventFired":
            self.loaded = True
        elif event == "Network.requestWillBeSent":
            self.requests.append(about["request"]["url"])
        elif event in ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded"):
            self.complaints.append(json.dumps(about)[:2000])
        elif event == "Page.javascriptDialogOpening":
            self.complaints.append(f"dialog: {about['message']}")

    def go(self, address: str) -> None:
        self.loaded = False
        self.requests.clear()
        self.send("Page.navigate", url=address)
        while not self.loaded:
            self._browser.receive()

    def look(self, *, dark: bool = False, size: tuple[int, int] = (1440, 1000)) -> None:
        """Colours that the system asks for, and the size of the window."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.send("Emulation.setEmulatedMedia", features=[scheme])
        metrics = {"width": size[0], "height": size[1], "deviceScaleFactor": 1, "mobile": False}
        self.send("Emulation.setDeviceMetricsOverride", **metrics)

    def value(self, expression: str) -> Any:
        """What an expression is in the page, as JSON."""
        result = self.send("Runtime.evaluate", expression=expression, returnByValue=True)
        if "exceptionDetails" in result:
            raise RuntimeError(json.dumps(result["exceptionDetails"])[:2000])
        return result["result"].get("value")

    def text(self, selector: str) -> str:
        return self.value(f"document.querySelector({json.dumps(selector)}).textContent")

    def numbers(self, selector: str) -> list[float]:
        """The whole numbers behind what is written, of every <data> that fits."""
        chosen = f"document.querySelectorAll({json.dumps(selector)})"
        return self.value(f"Array.from({chosen}, (each) => Number(each.value))")

    def click(self, selector: str, across: float = 0.5, down: float = 0.5) -> None:
        """A real click, at this share of the element's width and height."""
        box = self.value(
            "(() => { const e = document.querySelector(" + json.dumps(selector) + ");"
            "e.scrollIntoView({block: 'center', inline: 'center'});"
            "const b = e.getBoundingClientRect();"
            "return [b.x, b.y, b.width, b.height]; })()"
        )
        x, y = box[0] + across * box[2], box[1] + down * box[3]
        for kind in ("mousePressed", "mouseReleased"):
            self.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def press(self, *keys: str, shift: bool = False) -> None:
        """Real keys, one after the other, to whatever has the focus."""
        for key in keys:
            about = {
                "key": key,
                "code": "Space" if key == " " else key,
                "windowsVirtualKeyCode": KEYS[key],
                "modifiers": 8 if shift else 0,
            }
            text = {"text": {"Enter": "\r", " ": " "}[key]} if key in ("Enter", " ") else {}
            self.send("Input.dispatchKeyEvent", type="keyDown", **about, **text)
            self.send("Input.dispatchKeyEvent", type="keyUp", **about)

    def picture(self, *, clip: dict[str, float] | None = None) -> bytes:
        """A PNG of what is seen, or of a part of the page."""
        more = {"clip": clip, "captureBeyondViewport": True} if clip else {}
        return base64.b64decode(self.send("Page.captureScreenshot", format="png", **more)["data"])

    def close(self) -> None:
        self._browser.send("Target.closeTarget", targetId=self._target)
