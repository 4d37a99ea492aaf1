// Bundle the console: `node build.mjs FOLDER` writes index.html, and script and style by the hashes of what is in them.
// `node build.mjs --tests FOLDER` bundles the tests instead.
import { mkdir, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { basename, join } from "node:path";
import { gzipSync } from "node:zlib";
import { build } from "esbuild";

const here = import.meta.dirname;
const tests = process.argv[2] === "--tests";
const folder = process.argv[tests ? 3 : 2];
if (!folder) throw new Error("Name the folder to write to: node build.mjs FOLDER");

const common = { bundle: true, format: "esm", target: "es2022", jsx: "automatic", jsxImportSource: "preact" };

async function bundleTests() {
  const found = (await readdir(join(here, "src"), { recursive: true })).filter((name) => /\.test\.tsx?$/.test(name));
  await build({
    ...common,
    entryPoints: found.map((name) => join(here, "src", name)),
    outdir: folder,
    outExtension: { ".js": ".mjs" },
    platform: "node",
    packages: "external",
    loader: { ".css": "empty" },
    sourcemap: "inline",
  });
}

async function bundleConsole() {
  const made = await build({
    ...common,
    entryPoints: { console: join(here, "src/main.tsx") },
    outdir: folder,
    entryNames: "[name]-[hash]",
    minify: true,
    legalComments: "none",
    write: false,
  });
  const files = made.outputFiles.map((file) => ({ name: basename(file.path), contents: Buffer.from(file.contents) }));
  const named = (end) => files.find((file) => file.name.endsWith(end)).name;
  const page = (await readFile(join(here, "src/index.html"), "utf8"))
    .replace("console.js", named(".js"))
    .replace("console.css", named(".css"));
  files.push({ name: "index.html", contents: Buffer.from(page) });
  await rm(folder, { recursive: true, force: true });
  await mkdir(folder, { recursive: true });
  for (const { name, contents } of files) {
    await writeFile(join(folder, name), contents);
    console.log(`${name}: ${contents.length} bytes, compressed ${gzipSync(contents).length}`);
  }
}

await (tests ? bundleTests() : bundleConsole());
