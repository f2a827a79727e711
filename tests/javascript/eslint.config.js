import js from "@eslint/js";
import globals from "globals";

const assets = "**/export/page/assets/*.js";

export default [
  { ignores: ["node_modules"] },
  js.configs.recommended,
  {
    rules: {
      "no-var": "error",
      "prefer-const": "error",
      eqeqeq: "error",
      "no-implied-eval": "error",
      "no-eval": "error",
      "no-shadow": ["error", { builtinGlobals: false }],
      "no-unused-vars": ["error", { argsIgnorePattern: "^_" }],
      "max-lines": ["error", 500],
    },
  },
  {
    files: [assets],
    // Chapters of one script; TypeScript knows the names of the others.
    languageOptions: { globals: globals.browser, sourceType: "script" },
    rules: {
      // Text must never become markup.
      "no-undef": "off",
      "no-unused-vars": ["error", { vars: "local", argsIgnorePattern: "^_" }],
      "no-restricted-properties": ["error",
        ...["innerHTML", "outerHTML", "insertAdjacentHTML", "write"].map((property) => ({ property, object: "document" }))],
      "no-restricted-syntax": ["error", {
        selector: "MemberExpression[property.name=/^(innerHTML|outerHTML|insertAdjacentHTML|setHTMLUnsafe|srcdoc)$/]",
        message: "Text is set as text: use make() and textContent.",
      }],
    },
  },
  { files: ["**/javascript/*.js"], languageOptions: { globals: globals.node } },
];
