// A client made with openid-client, which orders the steps itself. See conversation.mjs.
import * as openid from "../npm/node_modules/openid-client/build/index.js";
import { converse } from "./conversation.mjs";

const AUTHENTICATIONS = {
  client_secret_basic: openid.ClientSecretBasic,
  client_secret_post: openid.ClientSecretPost,
  none: openid.None,
};

await converse(async ({ issuer, client_id, client_secret, method, redirect_uri, scope }) => {
  const authentication = AUTHENTICATIONS[method](client_secret);
  const client = await openid.discovery(new URL(issuer), client_id, {}, authentication, {
    algorithm: "oauth2",
    execute: [openid.allowInsecureRequests],
    timeout: 60,
  });
  let expectedState, pkceCodeVerifier;

  return {
    async begin() {
      expectedState = openid.randomState();
      pkceCodeVerifier = openid.randomPKCECodeVerifier();
      return openid.buildAuthorizationUrl(client, {
        redirect_uri,
        scope,
        state: expectedState,
        code_challenge: await openid.calculatePKCECodeChallenge(pkceCodeVerifier),
        code_challenge_method: "S256",
      }).href;
    },
    finish: ({ redirect }) =>
      openid.authorizationCodeGrant(client, new URL(redirect), { expectedState, pkceCodeVerifier }),
    refresh: ({ token }) => openid.refreshTokenGrant(client, token),
    revoke: ({ token }) => openid.tokenRevocation(client, token),
  };
});
