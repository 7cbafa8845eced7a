#!/usr/bin/env python3
"""The server's page in a real browser: tools/page_test.py BUILD/caravan [FOLDER-FOR-SCREENSHOTS]

Starts a server with a small model of random weights and Chromium without a window, and does what a reader does: gives the
key, asks, stops, regenerates, edits, changes settings, comes back later. Says SKIP and ends with 0 where there is no Chromium.
Only Python's own library is used: the browser is spoken to by a pipe.
"""
import json, os, shutil, subprocess, sys, tempfile, time

BROWSER = next((b for b in map(shutil.which, ("chromium", "chromium-browser", "google-chrome")) if b), None)


class Page:
    def __init__(self, folder):
        to_read, to_write = os.pipe()
        from_read, from_write = os.pipe()

        def prepare():  # the browser reads at 3 and writes at 4
            os.dup2(to_read, 10), os.dup2(from_write, 11)
            os.dup2(10, 3), os.dup2(11, 4)

        self.process = subprocess.Popen(
            [BROWSER, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
             "--disable-background-networking", f"--user-data-dir={folder}", "--remote-debugging-pipe", "about:blank"],
            close_fds=False, preexec_fn=prepare, stderr=subprocess.DEVNULL)
        os.close(to_read), os.close(from_write)
        self.out, self.into, self.n, self.held, self.trouble = to_write, from_read, 0, b"", []
        target = self.call("Target.createTarget", url="about:blank", session=None)["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True, session=None)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Accessibility"):
            self.call(domain + ".enable")

    def call(self, method, session="", **params):
        self.n += 1
        mine = self.n
        message = {"id": mine, "method": method, "params": params}
        if session is not None:
            message["sessionId"] = self.session
        os.write(self.out, json.dumps(message).encode() + b"\0")
        while True:
            while b"\0" not in self.held:
                piece = os.read(self.into, 1 << 16)
                assert piece, "the browser ended"
                self.held += piece
            text, self.held = self.held.split(b"\0", 1)
            got = json.loads(text)
            if got.get("id") == mine:
                assert "error" not in got, got
                return got["result"]
            if got.get("method") == "Runtime.exceptionThrown":
                self.trouble.append(json.dumps(got["params"]["exceptionDetails"])[:300])
            if got.get("method") == "Log.entryAdded" and got["params"]["entry"]["level"] == "error":
                self.trouble.append(got["params"]["entry"]["text"])
            if got.get("method") == "Page.javascriptDialogOpening":
                self.n += 1
                os.write(self.out, json.dumps({"id": self.n, "method": "Page.handleJavaScriptDialog", "sessionId":
                                               self.session, "params": {"accept": True}}).encode() + b"\0")

    def js(self, text):
        got = self.call("Runtime.evaluate", expression=text, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in got, got
        return got["result"].get("value")

    def until(self, text, seconds=30):
        end = time.time() + seconds
        while not self.js(text):
            assert time.time() < end, f"never: {text}\n{self.js('document.body.innerText')}\n{self.trouble}"
            time.sleep(0.02)

    def type(self, text):
        self.call("Input.insertText", text=text)

    def press(self, key, **more):
        codes = {"Enter": 13, "Escape": 27, "Tab": 9}
        for kind in ("keyDown", "keyUp"):
            text = {"text": "\r"} if key == "Enter" and kind == "keyDown" else {}
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=codes[key], **text, **more)

    def click(self, name, last=True):
        self.js(f"""(() => {{ const all = [...document.querySelectorAll('button')].filter(b => b.textContent === {name!r} &&
            b.offsetParent); all.at({-1 if last else 0}).click(); }})()""")

    def shot(self, folder, name, width=1200, height=800, dark=False):
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        if folder:
            import base64
            data = self.call("Page.captureScreenshot")["data"]
            with open(os.path.join(folder, name + ".png"), "wb") as f:
                f.write(base64.b64decode(data))


COUNT = "document.querySelectorAll('#log article').length"
IDLE = "!document.querySelector('[aria-busy=true]') && document.querySelector('#stop').hidden"
LAST = "document.querySelector('#log article:last-child .body').textContent"


def use(page, url, shots):
    page.call("Page.navigate", url=url)
    page.until("document.querySelector('#keys')?.open")
    page.shot(shots, "key")
    page.type("wrong"), page.press("Enter")
    page.until("document.querySelector('#keys').open && document.querySelector('#key-why').textContent")
    page.type("secret"), page.press("Enter")
    page.until("document.querySelector('#model').value === 'model'")
    page.until("document.querySelectorAll('#rows i').length === 2")
    page.trouble.clear()  # the refusals of keys

    page.js("document.querySelector('#input').focus()")
    page.type("Why is the <b>sky</b> blue?"), page.press("Enter")
    page.until(COUNT + " === 2")
    page.until(IDLE)
    first = page.js(LAST)
    assert first and "tokens/s" in page.js("document.querySelector('#status').textContent"), page.js("document.body.innerText")
    assert page.js("document.querySelector('#log article').textContent").count("<b>sky</b>") == 1
    assert page.js("document.querySelectorAll('#log b').length") == 0
    page.shot(shots, "light")
    page.shot(shots, "dark", dark=True)

    # settings count: with a seed two answers are the same, and no longer than they may be
    page.click("Settings")
    page.js("""for (const [name, value] of [['seed', '7'], ['max_tokens', '12']]) {
        const e = document.querySelector('#settings').elements[name]; e.value = value;
        e.dispatchEvent(new Event('input', {bubbles: true})); }""")
    page.js("""document.querySelector('#system').value = 'Be brief.';
        document.querySelector('#system').dispatchEvent(new Event('input', {bubbles: true}))""")
    page.shot(shots, "settings")
    said = []
    for _ in range(2):
        page.click("Regenerate")
        page.until(IDLE)
        said.append(page.js(LAST))
        assert "12 tokens" in page.js("document.querySelector('#status').textContent")
    assert said[0] == said[1] and page.js(COUNT) == 2

    # a question is changed, and what followed it is answered anew
    page.click("Edit", last=False)
    page.js("document.querySelector('#log textarea').select()")
    page.type("Another question"), page.press("Enter", modifiers=2)
    page.until(IDLE + " && document.querySelector('#log').textContent.includes('Another question')")
    assert page.js(COUNT) == 2

    # a long answer is stopped
    page.click("New conversation")
    page.js("""for (const [name, value] of [['max_tokens', '60000'], ['temperature', '0']]) {
        const e = document.querySelector('#settings').elements[name]; e.value = value;
        e.dispatchEvent(new Event('input', {bubbles: true})); }""")  # this model repeats itself then
    page.type("Go on for ever"), page.press("Enter")
    page.until("document.querySelector('#log article:last-child .body').textContent.length > 40")
    page.until("document.querySelector('#speed').textContent && !!document.querySelector('#rows .busy')")
    page.shot(shots, "busy")
    page.press("Escape")
    page.until(IDLE, 5)
    assert "stopped" in page.js("document.querySelector('#log').textContent")
    page.until("document.querySelector('#load').textContent.startsWith('0 of 2')")

    # the conversations are there when the reader comes back; the key too
    page.call("Page.reload")
    page.until("document.querySelectorAll('#conversations li').length === 2 && " + COUNT + " === 2")
    page.until("document.querySelector('#model').value === 'model'")
    page.shot(shots, "narrow", width=420, height=800)
    page.click("Conversations")
    page.shot(shots, "narrow-menu", width=420, height=800, dark=True)
    page.shot(None, "")
    page.click("✕")
    page.until("document.querySelectorAll('#conversations li').length === 1")

    # what a screen reader is told: everything that can be used has a name, and the keyboard reaches all of it
    nodes = page.call("Accessibility.getFullAXTree")["nodes"]
    for node in nodes:
        role = node.get("role", {}).get("value")
        if role in ("button", "textbox", "combobox", "spinbutton", "log", "navigation", "form") and not node.get("ignored"):
            assert node.get("name", {}).get("value"), node
    page.js("document.activeElement.blur()")
    reached = set()
    for _ in range(40):
        page.press("Tab")
        reached.add(page.js("document.activeElement.id || document.activeElement.className || document.activeElement.tagName"))
    assert {"skip", "new", "open", "model", "toggle", "theme", "log", "input", "send"} <= reached, reached
    assert not page.trouble, page.trouble


def main():
    if not BROWSER:
        print("SKIP: there is no Chromium here")
        return
    caravan, shots = os.path.abspath(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else None
    tokenizer = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../tests/data/chat/tokenizer.json")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        subprocess.run([caravan, "init", "-p", "tiny", "-s", "3", "--context", "65536", "--tokenizer", tokenizer, "-o",
                        folder + "/model"], check=True, stdout=subprocess.DEVNULL)
        with open(folder + "/keys", "w") as f:
            f.write("secret\n")
        server = subprocess.Popen([caravan, "serve", "-m", folder + "/model", "--port", "0", "--slots", "2", "--api-key-file",
                                   folder + "/keys"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        page = None
        try:
            url = server.stdout.readline().split()[-1]
            page = Page(folder + "/browser")
            use(page, url, shots)
            print("the page does what its reader wants")
        finally:
            if page:
                page.process.kill()
                page.process.wait()
            server.terminate()
            server.wait()


main()
