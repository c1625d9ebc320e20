// A page opened from the disk may not start a worker, so the search runs in a hidden frame. Material's search knows such a
// frame by the name IFrameWorker.
if (location.protocol === "file:") {
  window.Worker = window.IFrameWorker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      this.inside = frame.contentWindow;
      this.inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", {data}));
      this.inside.importScripts = (...urls) => urls.reduce((loaded, next) => loaded.then(() => this.load(next)), Promise.resolve());
      this.loaded = this.load(url);
    }

    load(url) {
      return new Promise((resolve, reject) => {
        const script = this.inside.document.createElement("script");
        script.src = url;
        script.onload = resolve;
        script.onerror = reject;
        this.inside.document.body.append(script);
      });
    }

    postMessage(data) {
      this.loaded.then(() => this.inside.dispatchEvent(new MessageEvent("message", {data})));
    }
  };
}
