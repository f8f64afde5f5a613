// Configures the website. scripts/docs.ts writes the pages and the navigation to website/pages.
import { readFileSync } from "node:fs";
import { defineConfig } from "vitepress";
import { githubSlug } from "../../scripts/documents/markdown.ts";

const navigation = JSON.parse(readFileSync(new URL("../pages/navigation.json", import.meta.url), "utf8"));
const CLOSED = ["Reference", "Resources", "More pages", "Modules"];

export default defineConfig({
  title: "calico-ts",
  description: "Addresses, BGP routing and network policy for Kubernetes clusters and hosts",
  srcDir: "./pages",
  outDir: "../dist/docs",
  cacheDir: "../.cache/vitepress",
  // Relative paths would let the site run below any path, but VitePress has none: serve it at the root of a host.
  base: "/",
  markdown: {
    html: false, // text such as <name> is not a tag
    anchor: { slugify: githubSlug },
    config: (md) => {
      // Go templates in the text are not expressions of Vue.
      for (const rule of ["text", "code_inline", "code_block"]) {
        const render = md.renderer.rules[rule];
        md.renderer.rules[rule] = (...args) => render(...args).replaceAll("{{", "&#123;&#123;");
      }
    },
  },
  themeConfig: {
    search: { provider: "local" },
    outline: [2, 3],
    nav: [
      { text: "Documentation", link: "/docs/" },
      { text: "Reference", link: "/docs/reference/" },
    ],
    sidebar: navigation.map((group) => ({ ...group, collapsed: CLOSED.includes(group.text) })),
    docFooter: { prev: false, next: false },
  },
});
