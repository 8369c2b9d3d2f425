// Shows times in the reader's own zone, and folds the parts of a page on a phone. Without it both stay as they are sent.
const format = new Intl.DateTimeFormat(document.documentElement.lang, { dateStyle: "medium", timeStyle: "short" });
for (const time of document.querySelectorAll("time")) {
  (time.querySelector("small") ?? time).textContent = format.format(new Date(time.dateTime));
}
if (matchMedia("(max-width: 34rem)").matches) {
  for (const part of document.querySelectorAll("details:not(:has([aria-invalid], [role=alert]))")) part.open = false;
}
