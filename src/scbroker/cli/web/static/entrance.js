// Send the code from the URL's fragment, which browsers send to no server by themselves.
"use strict";

const code = location.hash.slice(1);
if (code) {
  history.replaceState(null, "", "/");
  document.getElementById("code").value = code;
  document.getElementById("entrance").submit();
}
