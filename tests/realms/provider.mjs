// An independent identity provider: oidc-provider with its own login page and one user.
//
//   node provider.mjs PORT
//
// The first line of standard input has the settings as JSON. The provider ends with its standard input.
//
// It prints one line when it listens. Messages of the library go to standard error.
import { generateKeyPairSync, randomBytes } from "node:crypto";
import { once } from "node:events";
import { createServer } from "node:http";
import { createInterface } from "node:readline";
import { text } from "node:stream/consumers";
import Provider from "../npm/node_modules/oidc-provider/lib/index.js";

const ACCOUNTS = {
  zoe: { sub: "zoe-4711", name: "Zoë Example", email: "zoe@provider.example", email_verified: true },
};
const INTERACTION = /^\/interaction\/[\w-]+(?<abort>\/abort)?$/;

console.info = console.warn;

function makeSigningKey() {
  const { privateKey } = generateKeyPairSync("rsa", { modulusLength: 2048 });
  return { ...privateKey.export({ format: "jwk" }), use: "sig", alg: "RS256" };
}

// A login counts as consent to the requested scope.
async function loadExistingGrant({ oidc }) {
  const grant = new oidc.provider.Grant({ clientId: oidc.client.clientId, accountId: oidc.session.accountId });
  grant.addOIDCScope([...oidc.requestParamOIDCScopes].join(" "));
  await grant.save();
  return grant;
}

function findAccount(_, sub) {
  const claims = Object.values(ACCOUNTS).find((account) => account.sub === sub);
  return claims && { accountId: sub, claims: () => claims };
}

function makeProvider({ issuer, client_id, client_secret, redirect_uris, scopes, backchannel_logout_uri }) {
  const provider = new Provider(issuer, {
    clients: [
      {
        client_id,
        client_secret,
        redirect_uris,
        grant_types: ["authorization_code"],
        response_types: ["code"],
        token_endpoint_auth_method: "client_secret_basic",
        backchannel_logout_uri,
        backchannel_logout_session_required: true,
      },
    ],
    claims: { openid: ["sub"], email: ["email", "email_verified"], profile: ["name"] },
    cookies: { keys: [randomBytes(32).toString("hex")] },
    features: {
      backchannelLogout: { enabled: true },
      rpInitiatedLogout: { logoutSource: askForLogout, postLogoutSuccessSource: showLogout },
      devInteractions: { enabled: false },
      introspection: { enabled: true, allowedPolicy: (_, client, token) => token.clientId === client.clientId },
    },
    // The library's own fetch refuses addresses of this machine, where the service runs.
    fetch: (url, { dispatcher, ...options }) => globalThis.fetch(url, options),
    findAccount,
    interactions: { url: (_, interaction) => `/interaction/${interaction.uid}` },
    jwks: { keys: [makeSigningKey()] },
    loadExistingGrant,
    pkce: { required: () => true },
    responseTypes: ["code"],
    scopes,
    ttl: { AccessToken: 600, AuthorizationCode: 60, Grant: 600, IdToken: 600, Interaction: 600, Session: 600 },
  });
  provider.on("backchannel.error", (_, error) => console.error(error));
  provider.on("server_error", (_, error) => console.error(error));
  return provider;
}

const page = (path, alert) => `<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Example Provider</title><link rel="icon" href="data:,"></head>
<body><main><h1>Sign in at the Example Provider</h1>
${alert && `<p role="alert">${alert}</p>`}
<form method="post" action="${path}">
<p><label>Login <input name="login" autocomplete="username" required></label></p>
<p><label>Password <input name="password" type="password" autocomplete="current-password" required></label></p>
<button type="submit">Sign in</button>
</form>
<form method="post" action="${path}/abort"><button type="submit">Cancel</button></form>
</main></body></html>
`;

function showPage(response, path, alert = "") {
  response.writeHead(200, { "content-type": "text/html; charset=utf-8", "cache-control": "no-store" });
  response.end(page(path, alert));
}

// The logout page sends the form of the library, which has the logout's secret.
function askForLogout(context, form) {
  context.body = `${page("/").replace(/<main>.*<\/main>/s, "")}
${form}<button form="op.logoutForm" name="logout" value="yes">Sign out</button>`;
}

function showLogout(context) {
  context.body = page("/").replace(/<main>.*<\/main>/s, "<main><h1>Signed out</h1></main>");
}

// The login page and its two buttons.
async function interact(provider, request, response) {
  const finish = (result) =>
    provider.interactionFinished(request, response, result, { mergeWithLastSubmission: false });

  await provider.interactionDetails(request, response);
  if (request.method !== "POST") return showPage(response, request.url);
  if (INTERACTION.exec(request.url).groups.abort) return await finish({ error: "access_denied" });
  const form = new URLSearchParams(await text(request));
  const account = Object.hasOwn(ACCOUNTS, form.get("login")) && ACCOUNTS[form.get("login")];
  if (!account || !form.get("password")) return showPage(response, request.url, "That is not right.");
  return await finish({ login: { accountId: account.sub } });
}

const lines = createInterface({ input: process.stdin });
const [settings] = await once(lines, "line");
const provider = makeProvider(JSON.parse(settings));
const answer = provider.callback();

const server = createServer((request, response) => {
  if (!INTERACTION.test(request.url)) return answer(request, response);
  interact(provider, request, response).catch((error) => {
    response.writeHead(error.statusCode ?? 500, { "content-type": "text/plain" });
    response.end(String(error));
  });
});
lines.once("close", () => {
  server.close();
  server.closeAllConnections();
});
server.listen(Number(process.argv[2]), "127.0.0.1", () => console.log("ready"));
