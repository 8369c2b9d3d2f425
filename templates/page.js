// Shows times in the reader's own zone and a new password at a click, and folds the parts of a page on a phone. Without
// this script, times stay as they are sent, a new password is typed twice, and nothing is folded.
const format = new Intl.DateTimeFormat(document.documentElement.lang, { dateStyle: "medium", timeStyle: "short" });
for (const time of document.querySelectorAll("time")) {
  (time.querySelector("small") ?? time).textContent = format.format(new Date(time.dateTime));
}
if (matchMedia("(max-width: 34rem)").matches) {
  for (const part of document.querySelectorAll("details:not(:has([aria-invalid], [role=alert]))")) part.open = false;
}
const show = document.getElementById("show");
if (show) {
  const field = document.getElementById("new");
  const set = (shown) => {
    field.type = shown ? "text" : "password";
    show.setAttribute("aria-pressed", shown);
  };
  show.hidden = false;
  document.getElementById("twice").remove();
  show.addEventListener("click", () => set(field.type === "password"));
  field.form.addEventListener("submit", () => set(false));
}
