const fs = require("fs");
const https = require("https");

const { PORT, CERTIFICATE, KEY, FOLDER } = process.env;
let number = 0;

function keep(request, body) {
  const raw = request.rawHeaders;
  const headers = raw.flatMap((name, at) => (at % 2 ? [] : [`${name}: ${raw[at + 1]}`]));
  const text = [request.url, request.socket.remotePort, ...headers, "", body].join("\n");
  fs.writeFileSync(`${FOLDER}/writing`, text);
  fs.renameSync(`${FOLDER}/writing`, `${FOLDER}/${String(number++).padStart(6, "0")}.delivery`);
}

function answer(request, response, body) {
  if (request.method === "GET") return response.end(fs.readFileSync(`${FOLDER}/hash`));
  keep(request, body);
  if (request.url === "/refuse") return response.writeHead(400, { "Content-Type": "text/plain" }).end("no such bed\n");
  if (request.url === "/close") response.setHeader("Connection", "close");
  response.end();
}

https
  .createServer({ cert: fs.readFileSync(CERTIFICATE), key: fs.readFileSync(KEY) }, (request, response) => {
    const parts = [];
    request.on("data", (part) => parts.push(part));
    request.on("end", () => answer(request, response, Buffer.concat(parts).toString()));
  })
  .listen(Number(PORT), "127.0.0.1");
