{
  "payloadType": "application/vnd.in-toto+json",
  "payload": "eyJfdHlwZSI6Imh0dHBzOi8vaW4tdG90by5pby9TdGF0ZW1lbnQvdjEiLCJwcmVkaWNhdGUiOnsiZGlnZXN0Ijoic2hhMjU2OmM3ODZjOGZlZWY4Y2MzNjhhMzVmMDcwMDBiYmY1ZGYwNjYzZTg0YzQ0NzhiM2UzNzAzYmMxZDE4MjFmNmEzNWMiLCJsb2NrX3ZlcnNpb24iOjEsInBpbnMiOnsiYWxsIjoiZmxhdEAxLjAuMCB0cmFpbiAjOSBzaGEyNTY6YWNlY2U5MDU5Nzg0ZjA2MyJ9fSwicHJlZGljYXRlVHlwZSI6InVybjpkYXRhc2V0LXJlZ2lzdHJ5OnBpbjoxIiwic3ViamVjdCI6W3siZGlnZXN0Ijp7InNoYTI1NiI6IjE4OTc3YmRjYzkxOTNhNDg5ZDk0NzMxZTZhMDJkZWZjNmQzOGJmN2RhY2FkZDE3Y2MxMjQxNWZhMDlmM2Y5MjQifSwibmFtZSI6InNpZ25lZC5sb2NrLnlhbWwifV19",
  "signatures": [
    {
      "keyid": "sha256:e81cddc10b87899a34dff4e50f23e2429b2c5e4f84cbafcd09468e13d7b5c55d",
      "sig": "Y6QbUZ3mAZvNth6TTuy+2VKUuaMbnj/DTHD79FIYFvFampeNI/uGH821+1KXm6MI90P1x60gn2kP3P29XA/RCA=="
    }
  ]
}
