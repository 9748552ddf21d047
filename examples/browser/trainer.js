// The worker in which a session trains, so that the page stays responsive.
"use strict";

importScripts("session.js");

let session;

const METHODS = {
  async open(module, manifest, weights, threads) {
    session = await Session.open(module, manifest, weights, threads);
  },
  trainStep: (inputs, lr) => session.trainStep(inputs, lr),
  predict: (inputs) => session.predict(inputs),
};

// Answers each message {number, method, inputs} by {number, outputs} or {number, error}, in order.
let last = Promise.resolve();

onmessage = ({ data: { number, method, inputs } }) => {
  last = last.then(async () => {
    try {
      postMessage({ number, outputs: await METHODS[method](...inputs) });
    } catch (error) {
      postMessage({ number, error: error.message });
    }
  });
};
