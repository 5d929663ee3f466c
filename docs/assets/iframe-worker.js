// Search runs in a worker. Browsers refuse workers to pages opened from a folder; there a hidden frame takes its place.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.body.appendChild(document.createElement("iframe"));
      frame.hidden = true;
      this.inner = frame.contentWindow;
      const inner = this.inner;
      let loading = Promise.resolve();
      const load = (address) => (loading = loading.then(() => new Promise((done, failed) => {
        const script = inner.document.createElement("script");
        Object.assign(script, { src: new URL(address, location.href), onload: done, onerror: failed });
        inner.document.body.append(script);
      })));
      inner.importScripts = (...addresses) => Promise.all(addresses.map(load));
      inner.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      load(url);
      this.ready = loading;
    }
    postMessage(data) {
      this.ready.then(() => this.inner.dispatchEvent(new MessageEvent("message", { data })));
    }
    terminate() {}
  };
}
