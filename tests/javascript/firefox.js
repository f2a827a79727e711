/* Use pages in Firefox, over WebDriver BiDi, and print as JSON what was seen.

   node firefox.js FIREFOX PAGE...   the first page is one file, the second has a folder beside it */

import puppeteer from "puppeteer-core";

const [firefox, single, folder] = process.argv.slice(2);
const browser = await puppeteer.launch({ browser: "firefox", executablePath: firefox, headless: true });
const complaints = [];
const seen = {};

async function visit(address) {
  const tab = await browser.newPage();
  tab.on("console", (message) => complaints.push(message.text()));
  tab.on("pageerror", (error) => complaints.push(error.message));
  await tab.goto(address);
  await tab.evaluate("hshap.ready");
  return tab;
}
const settled = (tab) => tab.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))");

try {
  let tab = await visit(single);
  seen.findings = await tab.evaluate("hshap.findings().classes[0].findings");
  seen.leaves = await tab.evaluate("hshap.leaves()");
  await tab.evaluate("hshap.set(0.1)");
  seen.coarser = await tab.evaluate("hshap.leaves()");
  await tab.evaluate("hshap.set(null)");
  await tab.keyboard.press("n");
  await tab.keyboard.press("a");
  await settled(tab);
  await tab.keyboard.press("h");
  await settled(tab);
  seen.hidden = await tab.evaluate("hshap.state().hidden");
  seen.address = await tab.evaluate("location.hash");
  seen.greys = await tab.evaluate(`(() => {
    const canvas = document.querySelector("canvas.layer");
    return [...canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data].reduce((most, one) => Math.max(most, one), 0);
  })()`);
  await tab.evaluate("history.back()");
  await tab.waitForFunction("hshap.state().finding === -1");
  await tab.close();
  tab = await visit(single);
  seen.verdicts = await tab.evaluate("[...document.querySelectorAll('.verdict')].map((one) => one.textContent)");
  await tab.close();
  tab = await visit(folder);
  seen.cards = await tab.evaluate("document.querySelectorAll('.card').length");
  await tab.click(".card");
  await tab.waitForSelector(".panel");
  seen.fromFolder = await tab.evaluate("hshap.findings().classes[0].findings.length");
} finally {
  await browser.close();
}
console.log(JSON.stringify({ ...seen, complaints }));
