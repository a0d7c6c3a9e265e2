// Finds flags such as --max-switches. The search of the theme fails for a word with a dash inside, and
// excludes results with a word after a dash. So its worker receives blanks instead of dashes.
{
  const { prototype } = window.Worker;
  const { postMessage } = prototype;
  prototype.postMessage = function (message, ...rest) {
    const isQuery = typeof message?.data === "string";
    const sent = isQuery ? { ...message, data: message.data.replace(/-+/g, " ").trim() } : message;
    return postMessage.call(this, sent, ...rest);
  };
}
